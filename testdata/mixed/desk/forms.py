from django import forms


class LoginForm(forms.Form):
    name = forms.CharField(max_length=40)
    password = forms.CharField(widget=forms.PasswordInput)


class TicketForm(forms.Form):
    subject = forms.CharField(max_length=80)
    text = forms.CharField(widget=forms.Textarea)


class AttachmentForm(forms.Form):
    ticket = forms.IntegerField(min_value=1)
    file = forms.FileField()
